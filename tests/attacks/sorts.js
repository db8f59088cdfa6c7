// CPU time
export default () => { const a = Array.from({length: 100000}, (_, i) => i); for(;;){ a.sort(); a.reverse(); } };
