package gateway

import (
	"leased/contract"
	"leased/gateway/api"
)

func (h *handler) getKey(x *exchange) error {
	res, err := h.service.GetKey(x.r.Context(), &x.call, x.param("key_id"))
	if err != nil || !res.Outcome.OK() {
		return x.answer(&contract.Result{Outcome: res.Outcome}, err)
	}
	x.outcome = res.Outcome.String()
	return x.reply(api.NewKeyReply(&res))
}

func (h *handler) history(x *exchange) error {
	limit, err := x.takeLimit()
	if err != nil {
		return x.refused(err)
	}
	page, err := h.service.History(x.r.Context(), &x.call, x.param("key_id"), limit, x.query.Get("cursor"))
	if err != nil {
		return err
	}
	reply := api.HistoryReply{Events: make([]api.Event, len(page.Events)), NextCursor: page.NextCursor}
	for i := range page.Events {
		reply.Events[i] = api.NewEvent(&page.Events[i])
	}
	x.outcome = contract.OutcomeFound.String()
	return x.reply(&reply)
}

func (h *handler) resolve(x *exchange) error {
	var in api.ResolveRequest
	if err := x.decodeBody(&in, maxBody); err != nil {
		return x.refused(err)
	}
	key, err := h.service.Resolve(x.r.Context(), &x.call, &in)
	if err != nil {
		return err
	}
	x.outcome = contract.OutcomeFound.String()
	return x.reply(&api.ResolveReply{Key: api.NewKey(key), KeyID: key.ID().String(), Canonical: key.Canonical()})
}

func (h *handler) check(x *exchange) error {
	var in api.CheckRequest
	if err := x.decodeBody(&in, maxBody); err != nil {
		return x.refused(err)
	}
	res, err := h.service.Check(x.r.Context(), &x.call, &in)
	return x.answer(&res, err)
}
