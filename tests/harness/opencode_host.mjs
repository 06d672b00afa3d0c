// Plays OpenCode for tests of its plugin: runs the hook that a line of stdin names, and answers
// with a line that holds what the hook made of its output, and what it threw.

import fs from "node:fs"
import readline from "node:readline"
import { pathToFileURL } from "node:url"

const { default: plugin } = await import(pathToFileURL(process.argv[2]).href)
if (typeof plugin.id !== "string" || typeof plugin.setup !== "function") throw new Error("no plugin")
const directory = process.cwd()
// OpenCode 1 also sets it up as OpenCode 2 does, with a context that only takes registrations.
await plugin.setup({ options: {}, agent: {}, command: {}, plugin: {} })
const hooks = [await plugin.server({ client: {}, project: {}, directory, worktree: directory })]

for await (const line of readline.createInterface({ input: process.stdin })) {
  const { hook, input, output } = JSON.parse(line)
  if (hook === "exit") process.exit(0)
  let threw = null
  try {
    for (const each of hooks) await each[hook]?.(input, output)
  } catch (error) {
    threw = error.message
  }
  fs.writeSync(1, JSON.stringify({ output, threw, hooks: Object.keys(hooks[0]) }) + "\n")
}
