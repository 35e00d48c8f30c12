// Package client sends transactions to an API server of xbernetes.
//
//	c, err := client.New(config)
//	...
//	status, err := c.Do(ctx, client.Create(from), client.Create(to), client.Delete("v1", "Secret", "shop", "old"))
package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/xbernetes/xbernetes/api/transaction/v1alpha1"
)

// Client sends transactions. It is safe for concurrent use.
type Client struct{ rest rest.Interface }

// New returns a client of the API server that config names.
func New(config *rest.Config) (*Client, error) {
	c := rest.CopyConfig(config)
	gv := v1alpha1.GroupVersion()
	c.GroupVersion, c.APIPath, c.NegotiatedSerializer = &gv, "/apis", scheme.Codecs.WithoutConversion()
	c.ContentType, c.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	if c.UserAgent == "" {
		c.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	r, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("make a client for transactions: %w", err)
	}
	return &Client{r}, nil
}

// again is how long Send waits before it asks for an answer that was lost.
var again = []time.Duration{100 * time.Millisecond, time.Second, 5 * time.Second}

// Do carries out the operations together or not at all, and returns what was done. If
// the answer is lost, it asks again, by an idempotency key, for some six seconds. An
// error of apierrors.IsTimeout says that nobody knows whether the operations were
// carried out; of other errors of the API, that none was.
func (c *Client) Do(ctx context.Context, operations ...v1alpha1.Operation) (*v1alpha1.TransactionStatus, error) {
	done, err := c.Send(ctx, &v1alpha1.Transaction{Spec: v1alpha1.TransactionSpec{Operations: operations}}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	return &done.Status, nil
}

// Send is as Do. It gives t an idempotency key if t has none.
func (c *Client) Send(ctx context.Context, t *v1alpha1.Transaction, options metav1.CreateOptions) (*v1alpha1.Transaction, error) {
	t = t.DeepCopy()
	t.Spec.IdempotencyKey = cmp.Or(t.Spec.IdempotencyKey, rand.Text())
	lost := false // an attempt may have been carried out, or may still be
	for n := 0; ; n++ {
		done, err := c.Create(ctx, t, options)
		lost = lost || err != nil && unknown(err)
		switch {
		case err == nil:
			return done, nil
		case n < len(again) && (unknown(err) || apierrors.IsServiceUnavailable(err)):
		case lost && !unknown(err):
			return nil, apierrors.NewTimeoutError(fmt.Sprintf("the answer to an attempt was lost, which may still be carried out; the last attempt was not: %v", err), 0)
		default:
			return nil, err
		}
		select {
		case <-time.After(again[n]):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// unknown says whether nobody knows whether a transaction was carried out.
func unknown(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err)
}

// Create sends t once, and returns it with its status.
func (c *Client) Create(ctx context.Context, t *v1alpha1.Transaction, options metav1.CreateOptions) (*v1alpha1.Transaction, error) {
	t = t.DeepCopy()
	t.APIVersion, t.Kind = v1alpha1.GroupVersion().String(), "Transaction"
	body, err := json.Marshal(t)
	if err != nil {
		return nil, fmt.Errorf("encode the transaction: %w", err)
	}
	request := c.rest.Post().Resource("transactions").Body(body)
	for name, values := range map[string][]string{"dryRun": options.DryRun} {
		for _, v := range values {
			request.Param(name, v)
		}
	}
	raw, err := request.Do(ctx).Raw()
	if err != nil {
		return nil, explained(raw, err)
	}
	done := &v1alpha1.Transaction{}
	if err := json.NewDecoder(bytes.NewReader(raw)).Decode(done); err != nil {
		return nil, fmt.Errorf("decode the answer: %w", err)
	}
	return done, nil
}

// explained is the Status that the server answered with, if it did.
func explained(raw []byte, err error) error {
	status := metav1.Status{}
	if json.Unmarshal(raw, &status) == nil && status.Kind == "Status" && status.Status == metav1.StatusFailure {
		return &apierrors.StatusError{ErrStatus: status}
	}
	return err
}
