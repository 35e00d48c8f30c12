package bucket

import (
	"fmt"
	"regexp"
	"strings"
)

// Prefix comes before the names of all objects of one journal, without slashes at
// its ends; it may be empty.
type Prefix string

var segmentPattern = regexp.MustCompile(`^[A-Za-z0-9._=-]+$`)

// Validate checks that all stores can hold objects below the prefix.
func (p Prefix) Validate() error {
	if p == "" {
		return nil
	}
	for segment := range strings.SplitSeq(string(p), "/") {
		if !segmentPattern.MatchString(segment) || segment == "." || segment == ".." {
			return fmt.Errorf("prefix %q is not valid; it has parts of letters, digits and . _ = - between single slashes", string(p))
		}
	}
	return nil
}

// Key is the key of the object of that name: the prefix, a slash, the name.
func (p Prefix) Key(name string) string {
	if p == "" {
		return name
	}
	return string(p) + "/" + name
}

// Name is the name of the object with that key.
func (p Prefix) Name(key string) string { return strings.TrimPrefix(key, p.Key("")) }

// Below is how people write the prefix of a place: place/prefix.
func (p Prefix) Below(place string) string {
	if p == "" {
		return place
	}
	return place + "/" + string(p)
}
