// resolving | fs
export default () => { return import('fs') };
