// Package handshake lets two processes that share a secret recognise each other at the start of a connection, and
// encrypts the connection.
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
// A listener answers a caller of another version with the name of its own version, and ends the connection.
//
// The caller proves that it knows the secret before the listener proves anything, so a port scanner receives nothing
// that depends on the secret. Both random numbers are fresh, so a recorded handshake is useless. Proofs are compared in
// constant time. A stranger costs the listener one HMAC and no memory beyond 104 bytes; only a caller that has proved
// itself reaches the code of TLS. No function reads a byte beyond the handshake.
//
// # Encryption
//
// Encrypt starts TLS 1.3 on a connection whose two sides know each other. Both sides then prove the secret once more,
// together with a key of this TLS session (RFC 9266). A program between them that ends TLS on both sides has two
// different keys and is found. Therefore TLS needs no certificates, and a side without any makes one for itself.
// With [Certificates], both sides also verify each other's certificate. An empty secret proves nothing: TLS then keeps
// out only programs that listen.
//
// The caller of this package sets the deadlines of the connection.
//
// # Errors
//
//	ErrSecret        the other side has another secret, or none
//	ErrIntercepted   a program between both sides ended TLS on both sides
//	*StrangerError   the other side does not use the protocol, or another version
//	*CertificateError a certificate was refused, here or by the other side
package handshake
