// CPU time
export default () => { for(;;) console.log('x'.repeat(1000)) };
