// Plays OpenCode for tests of its plugin: runs the hook that a line of stdin names, and answers
// with a line that holds what the hook made of its output, and what it threw.

import fs from "node:fs"
import readline from "node:readline"
import { pathToFileURL } from "node:url"

const exported = await import(pathToFileURL(process.argv[2]).href)
const hooks = []
for (const plugin of Object.values(exported)) {
  hooks.push(await plugin({ client: {}, project: {}, directory: process.cwd(), worktree: process.cwd() }))
}

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
