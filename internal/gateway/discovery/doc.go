// Package discovery makes one discovery, and one OpenAPI, of those of many API
// servers, and says which server holds which group. It never forwards a
// caller's request, and never waits for one server before it serves another's.
package discovery
