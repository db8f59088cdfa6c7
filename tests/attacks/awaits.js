// CPU time
export default () => { return (async () => { for(;;) await 0; })() };
