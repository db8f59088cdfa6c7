// CPU time
export default () => { return new Function('for(;;){}')() };
