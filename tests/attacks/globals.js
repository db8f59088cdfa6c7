// undefinedundefined
export default () => { return typeof require + typeof process + typeof fetch + typeof std + typeof os };
