// What a process does that serves an agent and nothing else.

/** What can be started, and ends in an orderly way. */
export interface Service {
  start(): Promise<void>;
  stop(): Promise<void>;
}

/**
 * Starts what `make` gives, and ends the process with a line on stderr if that cannot be: `Expected` says so, and a
 * TypeError that the agent is none. When the process is asked to end (SIGINT, SIGTERM), it ends when its calls have.
 */
export async function asProcess<T extends Service>(
  Expected: new (...args: never[]) => Error,
  make: () => T,
  started: (service: T) => void,
): Promise<T> {
  try {
    const service = make();
    for (const signal of ["SIGINT", "SIGTERM"] as const) {
      // The second time it ends at once.
      process.once(signal, () => void service.stop().then(() => process.exit(0)));
    }
    await service.start();
    started(service);
    // Code of a turn that was cancelled may go on, and fail when nobody waits for it: the other turns shall not end by
    // that.
    process.on("unhandledRejection", (error) => {
      process.stderr.write(
        `forge-daemon: nobody waited for what failed: ${error instanceof Error ? error.stack : String(error)}\n`,
      );
    });
    return service;
  } catch (error) {
    if (!(error instanceof Expected || error instanceof TypeError)) throw error;
    return endWith(error);
  }
}

/** Ends the process with what went wrong. */
export function endWith(error: Error): never {
  process.stderr.write(`${error.message}\n`);
  process.exit(1);
}
