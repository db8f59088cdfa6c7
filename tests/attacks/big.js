// memory | BigInt | CPU time
export default () => { return (2n ** 100000000n) > 0n };
