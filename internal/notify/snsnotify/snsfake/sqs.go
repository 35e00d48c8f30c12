package snsfake

import (
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"
)

type queueRequest struct {
	QueueURL        string `json:"QueueUrl"`
	QueueName       string
	Owner           string `json:"QueueOwnerAWSAccountId"`
	Attributes      map[string]string
	WaitTimeSeconds int
	Entries         []struct{ ReceiptHandle string }
}

// serveQueue answers a request to SQS, in its JSON protocol.
func (f *Fake) serveQueue(w http.ResponseWriter, r *http.Request, who caller, action string) {
	var in queueRequest
	body, _ := io.ReadAll(r.Body)
	if err := json.Unmarshal(body, &in); err != nil {
		refuseQueue(w, "InvalidParameterValue")
		return
	}
	name := in.QueueName
	if name == "" {
		name = path.Base(in.QueueURL)
	}
	account := who.account
	if parts := strings.Split(in.QueueURL, "/"); len(parts) > 1 {
		account = parts[len(parts)-2]
	} else if in.Owner != "" {
		account = in.Owner
	}
	arn := "arn:aws:sqs:" + who.region + ":" + account + ":" + name
	if code := f.begin("sqs:" + strings.TrimSuffix(action, "Batch")); code != "" {
		refuseQueue(w, code)
		return
	}
	out, code := f.queueAction(r, action, arn, &in)
	if code != "" {
		refuseQueue(w, code)
		return
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	_ = json.NewEncoder(w).Encode(out)
}

func (f *Fake) queueAction(r *http.Request, action, arn string, in *queueRequest) (out map[string]any, code string) {
	if action == "ReceiveMessage" {
		messages, code := f.await(r, arn, time.Duration(in.WaitTimeSeconds)*time.Second)
		return map[string]any{"Messages": show(messages)}, code
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	q := f.queues[arn]
	if q == nil && action != "CreateQueue" {
		return nil, "QueueDoesNotExist"
	}
	parts := strings.Split(arn, ":")
	url := map[string]any{"QueueUrl": f.URL + "/" + parts[4] + "/" + parts[5]}
	switch action {
	case "CreateQueue":
		maximum, _ := strconv.Atoi(in.Attributes["MaximumMessageSize"])
		f.queues[arn] = &queue{maximum: maximum}
		return url, ""
	case "GetQueueUrl":
		return url, ""
	case "GetQueueAttributes":
		return map[string]any{"Attributes": map[string]string{"QueueArn": arn, "Policy": q.policy}}, ""
	case "SetQueueAttributes":
		q.policy = in.Attributes["Policy"]
	case "DeleteQueue":
		delete(f.queues, arn)
		f.wake()
	case "DeleteMessageBatch":
		for _, e := range in.Entries {
			q.remove(e.ReceiptHandle)
		}
	default:
		return nil, "UnsupportedOperation"
	}
	return map[string]any{}, ""
}

// take gives receipts to up to ten messages that nobody received yet.
func (f *Fake) take(q *queue) (out []message) {
	for i := range q.messages {
		if m := &q.messages[i]; m.receipt == "" && len(out) < 10 {
			f.seen++
			m.receipt = strconv.Itoa(f.seen)
			out = append(out, *m)
		}
	}
	return out
}

func (q *queue) remove(receipt string) {
	for i, m := range q.messages {
		if m.receipt == receipt {
			q.messages = append(q.messages[:i], q.messages[i+1:]...)
			return
		}
	}
}

func show(messages []message) (out []map[string]string) {
	for _, m := range messages {
		sum := md5.Sum([]byte(m.body))
		out = append(out, map[string]string{
			"MessageId": m.receipt, "ReceiptHandle": m.receipt, "Body": m.body, "MD5OfBody": hex.EncodeToString(sum[:]),
		})
	}
	return out
}

func refuseQueue(w http.ResponseWriter, code string) {
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	w.WriteHeader(http.StatusBadRequest)
	_ = json.NewEncoder(w).Encode(map[string]string{"__type": "com.amazonaws.sqs#" + code, "message": "refused"})
}
