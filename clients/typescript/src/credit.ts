// Credit of an attached stream and of its calls: the rules stand at `AttachService.Attach` in attach.proto.

/** Most credit that there can be; more is a fault of the daemon. */
const MOST = 2 ** 31;
/** Most credit that is used, however much is given: so much, and one frame, may wait for a daemon that takes nothing. */
const USED = 16 * 1024 * 1024;

/** Credit for each call and for the stream, in bytes. */
export interface Sizes {
  call: number;
  stream: number;
}

/** What the daemon has: 256 KiB for a call, 4 MiB for the stream. */
export const OURS: Sizes = { call: 256 * 1024, stream: 4 * 1024 * 1024 };

/** The credit that we have for something. It may fall below zero by one frame. */
export class Credit {
  #bytes: number;

  constructor(bytes: number) {
    this.#bytes = Math.min(bytes, USED);
  }

  get isLeft(): boolean {
    return this.#bytes > 0;
  }

  spend(bytes: number): void {
    this.#bytes -= bytes;
  }

  /** Takes what was given; false: it is more than there can be. */
  add(bytes: number): boolean {
    const sum = this.#bytes + bytes;
    this.#bytes = Math.min(sum, USED);
    return sum <= MOST;
  }
}

/**
 * What is to be given back for what came. All that comes is taken at once: a result that waits for its tool must not
 * keep a cancel behind it from being heard, nor another result that is awaited first. So the daemon is never out of
 * credit for longer than a frame travels, and what a call may hold is bounded by the calls of tools that its agent
 * has announced.
 */
export class Debt {
  #bytes = 0;

  constructor(private readonly whole: number) {}

  /** Counts what came; gives what is to be given back now, in steps of half the window. */
  owe(bytes: number): number {
    this.#bytes += bytes;
    if (this.#bytes < this.whole / 2) return 0;
    const back = this.#bytes;
    this.#bytes = 0;
    return back;
  }
}
