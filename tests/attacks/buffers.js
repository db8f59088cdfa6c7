// memory | Invalid array buffer
export default () => { const a = []; for(;;) a.push(new ArrayBuffer(1 << 24)) };
