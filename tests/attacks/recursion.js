// call stack | memory | stack overflow
export default () => { const f = () => f() + 1; return f() };
