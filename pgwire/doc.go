// Package pgwire is the server side of the PostgreSQL protocol, version 3.0. It knows messages, not SQL: everything else is behind
// the interfaces in session.go, which package server implements.
//
//	net.Conn ──▶ reader ──▶ conn ──▶ Session (package server)
//	               │  ▲       │          │
//	   read-ahead while a     │          ▼
//	   statement runs:        │      ResultWriter (writer): rows from vectors to bytes
//	   notices a vanished     ▼          │
//	   client              ErrorResponse,│ReadyForQuery
//	net.Conn ◀──────────── output buffer ◀
//
// One goroutine per connection does all of the work of a connection, the session's calls included. A second one exists only
// while a call takes longer than watchDelay. The Server owns both and waits for them.
package pgwire
