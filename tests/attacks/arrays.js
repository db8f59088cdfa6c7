// memory
export default () => { const a = []; for(;;) a.push(new Array(1e6).fill(a)) };
