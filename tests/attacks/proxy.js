// CPU time
export default () => { return new Proxy({}, { ownKeys() { for(;;){} } }) };
