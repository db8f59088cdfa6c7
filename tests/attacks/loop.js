// CPU time
export default () => { for(;;){} };
