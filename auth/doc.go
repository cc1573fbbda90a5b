// Package auth decides who may connect: rules in the form of pg_hba.conf, passwords as SCRAM-SHA-256 verifiers, client certificates. It knows
// roles only through an interface.
package auth
