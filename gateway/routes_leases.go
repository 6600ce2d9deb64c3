package gateway

import (
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
	reply := api.RenewBulkReply{Results: make([]api.RenewBulkItem, len(bulk.Items))}
	for i := range bulk.Items {
		reply.Results[i] = bulkItem(&bulk.Items[i], x.call.RequestID)
	}
	x.outcome = contract.OutcomeRenewed.String()
	return x.reply(&reply)
}

func bulkItem(item *contract.RenewItemResult, requestID string) api.RenewBulkItem {
	switch {
	case item.Err != nil:
		return api.RenewBulkItem{Error: problemOf(item.Err, requestID)}
	case !item.Outcome.OK() || item.Lease == nil:
		return api.RenewBulkItem{Error: outcomeProblem(&item.Result, requestID)}
	}
	return api.RenewBulkItem{Outcome: item.Outcome.String(), Lease: api.NewLease(item.Lease), Replayed: item.Replayed}
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
