// Package discovery merges the discovery and OpenAPI of many API servers, and says which
// server holds which group. It never forwards a caller's request, and never delays one
// server's discovery because of another server.
package discovery
