// Package docs holds the pages that repeat what the code says as data: a page
// that says something else fails here. LEASED_UPDATE_GOLDEN writes them anew.
package docs
