// memory | string too long | invalid string length
export default () => { let s = 'x'; for(;;) s += s };
