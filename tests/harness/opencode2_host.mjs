// Plays OpenCode 2 for tests of its plugin, by its documented rules: setup(ctx) registers hooks and
// reads events. A line of stdin names a hook ("session.context"), an event, or the end.

import fs from "node:fs"
import readline from "node:readline"
import { pathToFileURL } from "node:url"

const { default: plugin } = await import(pathToFileURL(process.argv[2]).href)
const directory = process.cwd()
const created = Date.now() + (process.argv[3] === "resumed" ? -60_000 : 60_000)
const hooks = {}
const unread = []
let wake = () => {}

const register = (domain) => async (name, hook) => {
  if (!/^[a-z.]+$/.test(name)) throw new Error(`unknown hook ${name}`)
  hooks[`${domain}.${name}`] = hook
  return { dispose() {} }
}
async function* subscribe({ signal }) {
  signal.addEventListener("abort", () => wake())
  while (!signal.aborted) {
    while (unread.length) {
      const { event, done } = unread.shift()
      yield event
      done()
    }
    await new Promise((resolve) => (wake = resolve))
  }
}
const context = {
  location: { directory },
  event: { subscribe },
  session: {
    hook: register("session"),
    get: async ({ sessionID }) => ({ id: sessionID, time: { created }, location: { directory } }),
  },
  tool: { hook: register("tool") },
}
const cleanup = await plugin.setup(context)

for await (const line of readline.createInterface({ input: process.stdin })) {
  const { hook, event, end } = JSON.parse(line)
  let threw = null
  if (end) await cleanup()
  else if (hook) {
    try {
      await hooks[hook](event)
    } catch (error) {
      threw = error.message
    }
  } else {
    await new Promise((done) => {
      unread.push({ event, done })
      wake()
    })
  }
  fs.writeSync(1, JSON.stringify({ event, threw, hooks: Object.keys(hooks) }) + "\n")
}
