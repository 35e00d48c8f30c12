package snsfake

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// serveTopic answers a request to SNS, in its query protocol.
func (f *Fake) serveTopic(w http.ResponseWriter, r *http.Request, who caller) {
	action := r.PostFormValue("Action")
	if code := f.begin("sns:" + action); code != "" {
		refuseTopic(w, code)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	topic := r.PostFormValue("TopicArn")
	_, known := f.topics[topic]
	inner := ""
	switch {
	case action == "Unsubscribe":
		f.unsubscribe(r.PostFormValue("SubscriptionArn"))
	case !known || strings.Split(topic, ":")[3] != who.region:
		refuseTopic(w, "NotFound")
		return
	case action == "Subscribe":
		arn := f.subscribe(topic, r)
		inner = "<SubscriptionArn>" + arn + "</SubscriptionArn>"
	case action == "Publish":
		f.publish(topic, r.PostFormValue("Message"), r.PostFormValue("MessageAttributes.entry.1.Value.StringValue"))
		inner = "<MessageId>1</MessageId>"
	default:
		refuseTopic(w, "InvalidAction")
		return
	}
	w.Header().Set("Content-Type", "text/xml")
	fmt.Fprintf(w, `<%[1]sResponse xmlns="http://sns.amazonaws.com/doc/2010-03-31/"><%[1]sResult>%[2]s</%[1]sResult></%[1]sResponse>`, action, inner)
}

func (f *Fake) subscribe(topic string, r *http.Request) string {
	s := subscription{queue: r.PostFormValue("Endpoint")}
	for i := 1; i <= 8; i++ {
		entry := fmt.Sprintf("Attributes.entry.%d.", i)
		value := r.PostFormValue(entry + "value")
		switch r.PostFormValue(entry + "key") {
		case "RawMessageDelivery":
			s.raw = value == "true"
		case "FilterPolicy":
			var filter struct {
				Writer []struct {
					Not []string `json:"anything-but"`
				} `json:"writer"`
			}
			_ = json.Unmarshal([]byte(value), &filter)
			for _, rule := range filter.Writer {
				s.not += strings.Join(rule.Not, "")
			}
		}
	}
	f.seen++
	s.arn = fmt.Sprintf("%s:%d", topic, f.seen)
	f.topics[topic] = append(f.topics[topic], s)
	return s.arn
}

func (f *Fake) unsubscribe(arn string) {
	for topic, all := range f.topics {
		for i, s := range all {
			if s.arn == arn {
				f.topics[topic] = append(all[:i:i], all[i+1:]...)
				return
			}
		}
	}
}

func (f *Fake) publish(topic, body, writer string) {
	for _, s := range f.topics[topic] {
		q := f.queues[s.queue]
		if q == nil || writer != "" && writer == s.not || !strings.Contains(q.policy, topic) {
			continue
		}
		bodies := []string{body}
		if f.deliver != nil {
			bodies = f.deliver(body)
		}
		for _, b := range bodies {
			if !s.raw {
				envelope, _ := json.Marshal(map[string]string{"Type": "Notification", "TopicArn": topic, "Message": b})
				b = string(envelope)
			}
			f.put(q, b)
		}
	}
}

func refuseTopic(w http.ResponseWriter, code string) {
	w.Header().Set("Content-Type", "text/xml")
	w.WriteHeader(http.StatusForbidden)
	fmt.Fprintf(w, `<ErrorResponse xmlns="http://sns.amazonaws.com/doc/2010-03-31/"><Error><Type>Sender</Type><Code>%s</Code><Message>refused</Message></Error></ErrorResponse>`, code)
}
