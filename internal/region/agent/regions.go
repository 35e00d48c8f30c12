package agent

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/xbernetes/xbernetes/api/region/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/region/stored"
)

// regions makes a Region for each member, as this region's copy of the membership has it.
func (t *term) regions(ctx context.Context) error {
	m, err := t.api.Membership(ctx)
	if err != nil {
		return err
	}
	have, err := t.api.Regions.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	known := map[string]v1alpha1.Region{}
	for _, r := range have.Items {
		if _, member := m.Find(stored.Region(r.Name)); member {
			known[r.Name] = r
			continue
		}
		if err := t.api.Regions.Delete(ctx, r.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	for _, member := range m.Members {
		r, ok := known[string(member.Region)]
		if !ok {
			made, err := t.api.Regions.Create(ctx, &v1alpha1.Region{ObjectMeta: metav1.ObjectMeta{Name: string(member.Region)}}, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			r = *made
		}
		status := v1alpha1.RegionStatus{State: "Joining", Since: int64(member.Since), Epoch: int64(m.Epoch)}
		if member.Active {
			status.State = "Active"
		}
		if r.Status == status {
			continue
		}
		r.Status = status
		if _, err := t.api.Regions.UpdateStatus(ctx, &r, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return nil
}
