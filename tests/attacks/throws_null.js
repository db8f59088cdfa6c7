// memory | null
export default () => { throw null };
