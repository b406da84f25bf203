use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use opendal::layers::{ConcurrentLimitLayer, RetryLayer, TimeoutLayer};
use opendal::{
    Buffer, Builder, HttpBody, HttpTransport, HttpTransporter, OperationContext, Operator,
};
use opendal_http_transport_reqwest::ReqwestTransport;
use state_api::{Error, Result};

use crate::publish::ConditionalPublish;
use crate::remote::pace::{LONGEST_WISH, Pace};
use crate::remote::secrets::Secrets;
use crate::remote::services::Place;
use crate::remote::{Pacing, Patience, RequestPolicy, Requests, StoreAccess};
use crate::root::StoreRoot;
use crate::store::{OpendalStore, Uploads};

/// Operations are bounded by their requests: a bound on open streams would let them wait for each other.
const ANY_NUMBER_OF_OPERATIONS: usize = 1 << 20;

/// What finds uploads that never ended, where opendal itself does not: made of the fields of the service, its operator and calls.
pub(super) type FindUploads =
    fn(&BTreeMap<String, String>, &Place, Calls) -> Result<Option<Arc<dyn Uploads>>>;

/// What a request of our own to a store is made with.
#[derive(Clone, Debug)]
pub(super) struct Calls {
    pub(super) transport: HttpTransporter,
    pub(super) policy: RequestPolicy,
    pub(super) pacing: Pacing,
    pub(super) requests: Requests,
    pub(super) secrets: Secrets,
}

/// Opens a service behind HTTP.
pub(super) fn open_http<B: Builder>(
    fields: BTreeMap<String, String>,
    place: &Place,
    access: &StoreAccess,
    find_uploads: Option<FindUploads>,
) -> Result<StoreRoot> {
    let secrets = access.options().secrets();
    let operator = Operator::from_iter::<B>(fields.clone()).map_err(|e| {
        Error::config("the store can't be opened with these options")
            .caused_by(super::secrets::ForeignError::new(&e, &secrets))
    })?;
    let policy = access.options().policy();
    let requests = Requests::default();
    let pace = Arc::new(Pace::new(policy, access.pacing().clone()));
    let transport = PacedTransport {
        inner: client(),
        requests: requests.clone(),
        pace,
        timeout: policy.timeout,
    };
    let transport = HttpTransporter::new(transport);
    let uploads = match find_uploads {
        Some(find) => {
            let calls = Calls {
                transport: transport.clone(),
                policy,
                pacing: access.pacing().clone(),
                requests: requests.clone(),
                secrets: secrets.clone(),
            };
            find(&fields, place, calls)?
        }
        None => None,
    };
    // One limit for both operators below.
    let limit = ConcurrentLimitLayer::new(ANY_NUMBER_OF_OPERATIONS)
        .with_http_concurrent_limit(policy.concurrent);
    let operator = operator
        .with_context(OperationContext::new().with_http_transport(transport))
        .layer(timeouts(&policy))
        .layer(limit);
    // Not under the retries: a create-if-absent that is repeated after an uncertain outcome would find its own object.
    let publish = ConditionalPublish::new(operator.clone(), Some(access.runtime().clone()))?
        .with_retries(policy, access.pacing().clone())
        .with_secrets(secrets.clone());
    let objects = OpendalStore::new(
        operator.layer(retries(&policy, &requests)),
        Some(access.runtime().clone()),
    )
    .with_parts(policy.part_len, policy.concurrent_parts)
    .in_bucket()
    .with_secrets(secrets)
    .with_uploads(uploads);
    let patience = Patience::new(policy, access.pacing().clone());
    let root = StoreRoot::new(Arc::new(objects), Arc::new(publish), &place.url);
    Ok(root.with_requests(requests).with_patience(patience))
}

/// Bounds what has no timeout of its own, such as reading a body, by a time in which a request may also be held back and queue.
///
/// It lies below the retries, which may not be dropped half-way.
pub(super) fn timeouts(policy: &RequestPolicy) -> TimeoutLayer {
    let most = policy.timeout * 2 + LONGEST_WISH * 2 + policy.max_backoff;
    TimeoutLayer::new().with_timeout(most).with_io_timeout(most)
}

pub(super) fn retries(
    policy: &RequestPolicy,
    requests: &Requests,
) -> RetryLayer<impl opendal::layers::RetryInterceptor + use<>> {
    let requests = requests.clone();
    RetryLayer::new()
        .with_jitter()
        .with_factor(2.0)
        .with_min_delay(policy.initial_backoff)
        .with_max_delay(policy.max_backoff)
        .with_max_times(policy.attempts.saturating_sub(1) as usize)
        .with_notify(move |event: opendal::layers::RetryEvent<'_>| {
            requests.count_retry();
            tracing::debug!(operation = %event.op, attempt = event.attempt, wait = ?event.retry_after, error = %event.err.kind(), "a call to the store is tried again");
        })
}

/// Returns the HTTP client of the process; TLS is by ring, unless the program has chosen already.
fn client() -> HttpTransporter {
    // An error says that there is a choice already.
    drop(rustls::crypto::ring::default_provider().install_default());
    let transport = ReqwestTransport::default();
    // Assuming a role takes a request that opendal makes by the client of the process.
    HttpTransporter::install_default(transport.clone());
    HttpTransporter::new(transport)
}

/// Counts requests, and holds them back while the store asks for patience.
struct PacedTransport {
    inner: HttpTransporter,
    requests: Requests,
    pace: Arc<Pace>,
    timeout: Duration,
}

impl HttpTransport for PacedTransport {
    async fn fetch(
        &self,
        request: http::Request<Buffer>,
    ) -> opendal::Result<http::Response<HttpBody>> {
        self.pace.wait().await;
        self.requests.count(request.method(), request.body().len());
        // Only now: time that the store asked for is none that it took.
        let Ok(answered) = tokio::time::timeout(self.timeout, self.inner.fetch(request)).await
        else {
            return Err(opendal::Error::new(
                opendal::ErrorKind::Unexpected,
                "a request was not answered in time",
            )
            .set_temporary());
        };
        let response = answered?;
        let throttled = matches!(
            response.status(),
            http::StatusCode::TOO_MANY_REQUESTS | http::StatusCode::SERVICE_UNAVAILABLE
        );
        if throttled {
            self.requests.count_throttled();
            self.pace
                .slow_down(retry_after(response.headers(), self.pace.now()));
        } else {
            self.pace.go_on();
        }
        // The services tell neither from what no further attempt would change.
        let (kind, passes) = match response.status() {
            http::StatusCode::TOO_MANY_REQUESTS => (
                opendal::ErrorKind::RateLimited,
                "the store asks for fewer requests",
            ),
            http::StatusCode::REQUEST_TIMEOUT => (
                opendal::ErrorKind::Unexpected,
                "a request took the store too long",
            ),
            _ => return Ok(response),
        };
        Err(opendal::Error::new(kind, passes).set_temporary())
    }
}

/// Returns the time that a store asks to wait, in seconds or until a date; what is neither counts as none.
fn retry_after(headers: &http::HeaderMap, now: SystemTime) -> Option<Duration> {
    let wish = headers
        .get(http::header::RETRY_AFTER)?
        .to_str()
        .ok()?
        .trim();
    match wish.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        // A date that is over asks for nothing.
        Err(_) => httpdate::parse_http_date(wish)
            .ok()?
            .duration_since(now)
            .ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_names_seconds_or_a_date_to_wait_until() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        for (wish, seconds) in [
            ("120", Some(120)),
            (" 0 ", Some(0)),
            ("Sun, 06 Nov 1994 08:50:00 GMT", Some(23)),
            ("Sunday, 06-Nov-94 08:50:00 GMT", Some(23)),
            ("Sun, 06 Nov 1994 08:49:00 GMT", None),
            ("-1", None),
            ("soon", None),
            ("", None),
        ] {
            let mut headers = http::HeaderMap::new();
            headers.insert(http::header::RETRY_AFTER, wish.parse().unwrap());
            let asked = retry_after(&headers, now);
            assert_eq!(asked, seconds.map(Duration::from_secs), "{wish:?}");
        }
        assert_eq!(retry_after(&http::HeaderMap::new(), now), None);
    }
}
