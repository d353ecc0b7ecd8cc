// Package handshake lets two processes with a common secret authenticate each other at the start of a connection. It
// can also encrypt the connection.
//
//	p := handshake.Protocol{Name: [8]byte{'e', 'x', 'a', 'm', 'p', 'l', 'e', 1}, Secret: secret, Claim: 4}
//
//	session, err := p.Call(conn, claim)           // the side that connects
//	session, err := p.Answer(conn, accept)        // the side that listens
//	secure, err := session.Encrypt(conn, handshake.TLS{Client: true})
//
// # Messages
//
//	caller   name of the protocol, random number C (32 bytes)
//	listener name of the protocol, random number L (32 bytes)
//	caller   claim, HMAC-SHA256(secret, "caller", name, C, L, claim)
//	listener verdict (1 byte), HMAC-SHA256(secret, "listener", name, C, L, claim)
//
// If the caller uses another version, the listener sends the name of its own version and ends the connection.
//
// The caller proves that it knows the secret before the listener proves anything, so a port scanner receives nothing
// that depends on the secret. Both random numbers are fresh, so a replay of a recorded handshake fails. Proofs are
// compared in constant time. For an unauthenticated caller, the listener computes one HMAC and allocates at most 104
// bytes. Only an authenticated caller reaches the TLS code. No function reads bytes after the handshake.
//
// # Encryption
//
// Encrypt starts TLS 1.3 on a connection after the handshake. Both sides then prove the secret again, in a proof that
// also covers a key of this TLS session (RFC 9266). A man in the middle has two TLS sessions with different keys, so
// the proof of one session fails in the other. Therefore no certificate authority is necessary. A side without
// [Certificates] generates a self-signed certificate, which the other side does not verify. With [Certificates], both
// sides also verify each other's certificate. An empty secret proves nothing. With an empty secret and without
// certificates, TLS protects only from passive eavesdroppers.
//
// Code that uses this package must set the deadlines of the connection.
//
// # Errors
//
//	ErrSecret        the other side has another secret, or none
//	ErrIntercepted   a man in the middle ended TLS on both sides
//	*StrangerError   the other side does not use the protocol, or another version
//	*CertificateError a certificate was refused, here or by the other side
package handshake
