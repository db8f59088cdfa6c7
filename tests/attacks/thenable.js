// it answered {} | CPU time
export default () => { return { then(resolve) { for(;;){} } } };
