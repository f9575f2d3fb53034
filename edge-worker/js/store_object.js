// Asks the Durable Object that holds the connection to the store. Resolves to its answer; to undefined when none comes in
// time, to null when it could not be asked.
export function askObject(environment, name, location, tag, command, waitMs) {
  let answer;
  try {
    const hint = location && { locationHint: location };
    answer = environment.STORE_CONNECTION.getByName(name, hint).ask(tag, command, waitMs);
  } catch {
    return Promise.resolve(null);
  }
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, waitMs);
    const end = (bytes) => {
      clearTimeout(timer);
      resolve(bytes);
    };
    answer.then(end, () => end());
  });
}
