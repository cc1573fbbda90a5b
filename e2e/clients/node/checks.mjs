// What the client programs share: comparisons, and a count of them at the end.
import assert from 'node:assert/strict'

let done = 0

// same ends the program when got is not want.
export function same(what, got, want) {
  assert.deepEqual(got, want, `${what}: got ${JSON.stringify(got)}, want ${JSON.stringify(want)}`)
  done++
}

// code ends the program when f does not fail with the SQLSTATE.
export async function code(what, sqlstate, f) {
  let got = 'no error'
  try {
    await f()
  } catch (e) {
    got = e.code ?? e.original?.code ?? e.message
  }
  same(what, got, sqlstate)
}

process.on('exit', () => console.log(`${done} checks`))
