// Uses the official TypeScript SDK as its users do; prints what came of it as one line of JSON.
// Arguments: the SDK's module, the program to start, the scene, and options of the thread as JSON.
import { readFile } from "node:fs/promises";

const [module, codexPathOverride, scene, given] = process.argv.slice(2);
const { Codex } = await import(module);
const { codex: codexOptions, thread: threadOptions, ...words } = JSON.parse(given);
const codex = new Codex({ codexPathOverride, ...codexOptions });
const options = { skipGitRepoCheck: true, ...threadOptions };

const scenes = {
  async run() {
    const thread = codex.startThread(options);
    const first = await thread.run("one");
    const second = await thread.run("two");
    return { id: thread.id, first, second };
  },
  async streamed() {
    const { events } = await codex.startThread(options).runStreamed("go");
    const seen = [];
    for await (const event of events) seen.push(event.item ? [event.type, event.item.type] : [event.type]);
    return seen;
  },
  async resumed() {
    const thread = codex.resumeThread(words.id, options);
    const { finalResponse } = await thread.run("again");
    return { id: thread.id, finalResponse };
  },
  async structured() {
    const thread = codex.startThread(options);
    const { finalResponse } = await thread.run("go", { outputSchema: words.schema });
    return JSON.parse(finalResponse);
  },
  async pictured() {
    const text = (part) => ({ type: "text", text: part });
    const image = { type: "local_image", path: words.image };
    const { finalResponse } = await codex.startThread(options).run([text("a"), image, text("b")]);
    return finalResponse;
  },
  async aborted() {
    const stop = new AbortController();
    const { events } = await codex.startThread(options).runStreamed("go", { signal: stop.signal });
    for await (const event of events) {
      if (event.type !== "item.started") continue;
      await readFile(words.ready);
      stop.abort();
    }
  },
};

let outcome;
try {
  outcome = { value: await scenes[scene]() };
} catch (error) {
  outcome = { error: { name: error.name, message: error.message } };
}
console.log(JSON.stringify(outcome));
