//go:build invariants || race

package invariants

// Enabled is set in builds that check their invariants.
const Enabled = true
