// CPU time
export default () => { return { toJSON() { for(;;){} } } };
