// call stack | stack overflow | memory
export default () => { function* g() { for(;;) yield* g() } return [...g()] };
