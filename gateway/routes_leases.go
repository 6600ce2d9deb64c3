package gateway

import (
	"bytes"
	"net/http"
	"slices"

	"github.com/go-json-experiment/json"

	"leased/contract"
	"leased/gateway/api"
)

func (h *handler) acquire(x *exchange) error {
	var in api.AcquireRequest
	if err := x.decodeBody(&in, maxBody); err != nil {
		return x.refused(err)
	}
	res, err := h.service.Acquire(x.r.Context(), &x.call, &in)
	return x.answer(&res, err)
}

func (h *handler) renew(x *exchange) error {
	var in api.RenewRequest
	if err := x.decodeBody(&in, maxBody); err != nil {
		return x.refused(err)
	}
	res, err := h.service.Renew(x.r.Context(), &x.call, x.param("lease_id"), &in)
	return x.answer(&res, err)
}

func (h *handler) release(x *exchange) error {
	var in api.ReleaseRequest
	if err := x.decodeBody(&in, maxBody); err != nil {
		return x.refused(err)
	}
	res, err := h.service.Release(x.r.Context(), &x.call, x.param("lease_id"), &in)
	return x.answer(&res, err)
}

func (h *handler) revoke(x *exchange) error {
	var in api.RevokeRequest
	if err := x.decodeBody(&in, maxBody); err != nil {
		return x.refused(err)
	}
	res, err := h.service.Revoke(x.r.Context(), &x.call, x.param("lease_id"), &in)
	return x.answer(&res, err)
}

func (h *handler) renewBulk(x *exchange) error {
	var in api.RenewBulkRequest
	if err := x.decodeBody(&in, maxBulkBody); err != nil {
		return x.refused(err)
	}
	bulk, err := h.service.RenewBulk(x.r.Context(), &x.call, &in)
	if err != nil {
		return err
	}
	x.outcome = contract.OutcomeRenewed.String()
	return x.write(http.StatusOK, x.h.json, func(buf *bytes.Buffer) ([]byte, error) {
		return x.appendBulk(slices.Grow(buf.AvailableBuffer(), replySize*len(bulk.Items)), bulk.Items)
	})
}

// appendBulk appends the api.RenewBulkReply that has the items. One that was renewed
// looks as it would if it had been renewed alone.
func (x *exchange) appendBulk(b []byte, items []contract.RenewItemResult) ([]byte, error) {
	b = append(b, `{"results":[`...)
	for i := range items {
		if i > 0 {
			b = append(b, ',')
		}
		item := &items[i]
		var err error
		switch {
		case item.Err != nil:
			b, err = x.appendItem(b, problemOf(item.Err, x.call.RequestID))
		case !item.Outcome.OK() || item.Lease == nil:
			b, err = x.appendItem(b, outcomeProblem(&item.Result, x.call.RequestID))
		default:
			b, err = api.AppendLeaseReply(b, item.Outcome, item.Lease, item.Replayed)
		}
		if err != nil {
			return nil, err
		}
	}
	return append(b, "]}"...), nil
}

// appendItem appends the answer for a lease that was not renewed.
func (x *exchange) appendItem(b []byte, why *api.Problem) ([]byte, error) {
	item, err := json.Marshal(&api.RenewBulkItem{Error: why}, x.h.encode)
	return append(b, item...), err
}

func (h *handler) get(x *exchange) error {
	res, err := h.service.Get(x.r.Context(), &x.call, x.param("lease_id"))
	if err != nil || !res.Outcome.OK() {
		return x.answer(&res, err)
	}
	x.outcome = res.Outcome.String()
	return x.reply(&api.GetReply{Lease: api.NewLease(res.Lease)})
}

func (h *handler) list(x *exchange) error {
	r, err := x.takeFilters()
	if err != nil {
		return x.refused(err)
	}
	page, err := h.service.List(x.r.Context(), &x.call, r)
	if err != nil {
		return err
	}
	reply := api.ListReply{Leases: make([]*api.Lease, len(page.Leases)), NextCursor: page.NextCursor}
	for i := range page.Leases {
		reply.Leases[i] = api.NewLease(&page.Leases[i])
	}
	x.outcome = contract.OutcomeFound.String()
	return x.reply(&reply)
}
