// CPU time
export default () => { for(;;){ try { for(;;){} } catch {} finally { for(;;){} } } };
