package bucket

import (
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Place is what the URL of a journal says of an object store: SCHEME://HOST/PATH?PARAMETERS.
type Place struct {
	Host, Path string // Path has no slash at its ends
	Endpoint   string // parameter endpoint: the base URL of a store other than the provider's
	Anonymous  bool   // parameter anonymous: requests carry no credentials
}

var secretPattern = regexp.MustCompile(`(?i)secret|token|password|credential|access|key|sig`)

// ParseURL reads the URL of a journal whose form is as form says; credentials says
// how people give theirs. A URL that carries a secret is refused, and the error
// does not repeat it.
func ParseURL(u *url.URL, form, credentials string) (Place, error) {
	if scheme, _, _ := strings.Cut(form, ":"); u.Scheme != scheme {
		return Place{}, fmt.Errorf("journal URL has the scheme %q; want %s", u.Scheme, form)
	}
	if u.User != nil {
		return Place{}, fmt.Errorf("journal URL carries credentials; remove them, and give them by %s", credentials)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil || u.Opaque != "" || u.Fragment != "" {
		return Place{}, fmt.Errorf("journal URL is malformed; want %s?endpoint=URL", form)
	}
	place := Place{Host: u.Host, Path: strings.Trim(u.Path, "/")}
	for name, values := range query {
		switch {
		case !slices.Contains([]string{"endpoint", "anonymous"}, name) && secretPattern.MatchString(name):
			return Place{}, fmt.Errorf("journal URL carries what looks like a secret (parameter %q); remove it, and give credentials by %s", name, credentials)
		case !slices.Contains([]string{"endpoint", "anonymous"}, name):
			return Place{}, fmt.Errorf("journal URL has an unknown parameter %q; known are endpoint and anonymous", name)
		case len(values) != 1 || values[0] == "":
			return Place{}, fmt.Errorf("journal URL must give %s once, with a value", name)
		case name == "endpoint":
			place.Endpoint = values[0]
		default:
			if place.Anonymous, err = strconv.ParseBool(values[0]); err != nil {
				return Place{}, fmt.Errorf("journal URL has anonymous=%q; want true or false", values[0])
			}
		}
	}
	return place, nil
}

// CheckEndpoint checks an endpoint that is not empty. Credentials go to https, or to
// this machine, and nowhere else.
func CheckEndpoint(endpoint string, anonymous bool) error {
	u, err := url.Parse(endpoint)
	switch {
	case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "":
		return fmt.Errorf("endpoint is not valid; want http://host:port or https://host")
	case u.User != nil:
		return fmt.Errorf("endpoint carries credentials; remove them")
	case u.Path != "" && u.Path != "/", u.RawQuery != "", u.Fragment != "", u.Opaque != "":
		return fmt.Errorf("endpoint %q has more than a host; want http://host:port or https://host", u.Redacted())
	case u.Scheme == "http" && !anonymous && !loopback(u.Hostname()):
		return fmt.Errorf("endpoint %q would get credentials in clear text; write https://, or anonymous=true if the store wants none", endpoint)
	}
	return nil
}

// loopback says whether host is this machine, by an address or by its usual name.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
