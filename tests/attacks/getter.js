// no
export default () => { return { get passed() { throw new Error('no') } } };
