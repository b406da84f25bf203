use std::collections::BTreeMap;

use state_api::{Error, Result};

#[cfg(feature = "remote")]
use crate::remote::STORE_OPTIONS;
use crate::remote::StoreAccess;
use crate::root::StoreRoot;

/// A kind of store that a URL can name.
pub(crate) struct Service {
    /// The cargo feature that compiles it in.
    pub(crate) feature: &'static str,
    /// The schemes of its URLs, the canonical one first.
    pub(crate) schemes: &'static [&'static str],
    /// What it is called.
    pub(crate) name: &'static str,
    compiled: bool,
}

/// The services that are known, compiled in or not.
pub(crate) static SERVICES: &[Service] = &[
    Service {
        feature: "s3",
        schemes: &["s3", "s3a", "s3n", "s3p"],
        name: "Amazon S3 and its like",
        compiled: cfg!(feature = "s3"),
    },
    Service {
        feature: "gcs",
        schemes: &["gs", "gcs"],
        name: "Google Cloud Storage",
        compiled: cfg!(feature = "gcs"),
    },
    Service {
        feature: "azblob",
        schemes: &["az", "azblob", "wasb", "wasbs", "abfs", "abfss", "azdls"],
        name: "Azure Blob Storage",
        compiled: cfg!(feature = "azblob"),
    },
    Service {
        feature: "oss",
        schemes: &["oss"],
        name: "Alibaba Cloud OSS",
        compiled: cfg!(feature = "oss"),
    },
    Service {
        feature: "cos",
        schemes: &["cos", "cosn"],
        name: "Tencent Cloud COS",
        compiled: cfg!(feature = "cos"),
    },
    Service {
        feature: "hdfs",
        schemes: &["hdfs", "viewfs"],
        name: "HDFS",
        compiled: cfg!(feature = "hdfs"),
    },
];

/// The parts of a URL that names a store.
#[derive(Debug, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "remote"),
    allow(dead_code, reason = "what opens a store is behind features")
)]
pub(crate) struct Place {
    /// What stands between `://` and the path: a bucket, a container, a name node.
    pub(crate) authority: String,
    /// The path with a slash in front and none behind.
    pub(crate) path: String,
    /// The URL in its one spelling: the canonical scheme, no doubled slash, none at the end.
    pub(crate) url: String,
}

/// Opens a folder of a store by URL.
///
/// # Errors
/// `Config` when the URL is malformed, or its scheme is unknown or not compiled in; `Unsupported` when the store can't publish.
pub(crate) fn open(scheme: &str, url: &str, access: &StoreAccess) -> Result<StoreRoot> {
    let service = find(scheme)?;
    let place = place(service, scheme, url)?;
    let fields = access.options().fields(service.feature);
    let named = |e: Error| e.with("store", &place.url);
    let inside = place.path.trim_start_matches('/');
    let entropy = match service.feature {
        "s3" => access.options().entropy(),
        _ => None,
    };
    if let Some((marker, digits)) = entropy
        && inside.contains(marker)
    {
        let scheme = place.url.split("://").next().unwrap_or(scheme);
        let bucket = Place {
            authority: place.authority.clone(),
            path: "/".to_owned(),
            url: format!("{scheme}://{}", place.authority),
        };
        let bucket = build(service.feature, &bucket, fields, access).map_err(named)?;
        return bucket.with_entropy(inside, marker, digits).map_err(named);
    }
    build(service.feature, &place, fields, access).map_err(named)
}

fn find(scheme: &str) -> Result<&'static Service> {
    let known = SERVICES
        .iter()
        .find(|service| service.schemes.contains(&scheme));
    match known {
        Some(service) if service.compiled => Ok(service),
        Some(service) => Err(Error::config(format!(
            "{scheme}: is {}, which is not compiled in: build with --features {}",
            service.name, service.feature
        ))),
        None => {
            let known: Vec<_> = SERVICES
                .iter()
                .flat_map(|service| service.schemes)
                .copied()
                .collect();
            let hint = state_api::option_text::nearest(scheme, known.iter().copied())
                .map_or_else(String::new, |near| format!("did you mean {near}:? "));
            Err(Error::config(format!(
                "no store has URLs of scheme {scheme}:; {hint}known are file, {}",
                known.join(", ")
            )))
        }
    }
}

/// Takes a URL apart.
fn place(service: &Service, scheme: &str, url: &str) -> Result<Place> {
    let refuse =
        |why: &str| Err(Error::config(why.to_owned()).with("url", crate::root::scheme_of(url)));
    if url.contains(['?', '#']) {
        return refuse(
            "a store's URL has no query: endpoint, region and credentials are options of their own",
        );
    }
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    // Azure names the container before the account's host.
    let at_host = service.feature == "azblob" && !authority.starts_with('@');
    // A password may hold a slash, so that what is in front of it looks like a bucket.
    let outside = match at_host {
        true => authority.replacen('@', "", 1),
        false => authority.to_owned(),
    };
    let has_port = service.feature == "hdfs";
    if outside.contains('@') || path.contains('@') || (outside.contains(':') && !has_port) {
        return refuse(
            "a store's URL has no user, no password and no @: credentials are options of their own",
        );
    }
    if authority.is_empty() && service.feature != "hdfs" {
        return refuse("the URL names no bucket");
    }
    let segments: Vec<_> = path
        .split('/')
        .filter(|segment| !segment.is_empty())
        .collect();
    if segments
        .iter()
        .any(|segment| matches!(*segment, "." | ".."))
    {
        return refuse("the URL has a segment . or ..");
    }
    // viewfs is another file system than hdfs; the others are spellings of one.
    let scheme = if scheme == "viewfs" {
        scheme
    } else {
        service.schemes[0]
    };
    let path = segments.join("/");
    let slash = if path.is_empty() { "" } else { "/" };
    Ok(Place {
        authority: authority.to_owned(),
        url: format!("{scheme}://{authority}{slash}{path}"),
        path: format!("/{path}"),
    })
}

#[cfg(feature = "remote")]
#[cfg_attr(
    not(feature = "http"),
    expect(
        unused_mut,
        unused_variables,
        reason = "only stores behind HTTP need them"
    )
)]
fn build(
    feature: &str,
    place: &Place,
    mut fields: BTreeMap<String, String>,
    access: &StoreAccess,
) -> Result<StoreRoot> {
    #[cfg(feature = "http")]
    use super::http::open_http;
    check_said(&fields, feature)?;
    #[cfg(feature = "s3")]
    if feature == "s3" {
        check_region(&fields)?;
    }
    // The services put a slash of their own behind it.
    if let Some(endpoint) = fields.get_mut("endpoint") {
        endpoint.truncate(endpoint.trim_end_matches('/').len());
    }
    let mut set = |name: &str, value: &str| {
        fields.insert(name.to_owned(), value.to_owned());
    };
    match feature {
        #[cfg(feature = "s3")]
        "s3" => {
            set("bucket", &place.authority);
            set("root", &place.path);
            let in_path = access
                .options()
                .flag("s3.path.style.access")
                .unwrap_or(true);
            set(
                "enable_virtual_host_style",
                if in_path { "false" } else { "true" },
            );
            open_http::<opendal::services::S3>(
                fields,
                place,
                access,
                Some(super::s3_uploads::find_uploads),
            )
        }
        #[cfg(feature = "gcs")]
        "gcs" => {
            set("bucket", &place.authority);
            set("root", &place.path);
            open_http::<opendal::services::Gcs>(fields, place, access, None)
        }
        #[cfg(feature = "azblob")]
        "azblob" => {
            let (container, host) = place
                .authority
                .split_once('@')
                .unwrap_or((&place.authority, ""));
            set("container", container);
            set("root", &place.path);
            if let Some((account, domain)) = host.split_once('.') {
                // The same data, by the protocol whose writes on condition are atomic.
                let domain = domain.replacen("dfs.", "blob.", 1);
                fields
                    .entry("account_name".into())
                    .or_insert_with(|| account.to_owned());
                fields
                    .entry("endpoint".into())
                    .or_insert_with(|| format!("https://{account}.{domain}"));
            }
            complete_azure(&mut fields)?;
            open_http::<opendal::services::Azblob>(fields, place, access, None)
        }
        #[cfg(feature = "oss")]
        "oss" => {
            set("bucket", &place.authority);
            set("root", &place.path);
            open_http::<opendal::services::Oss>(fields, place, access, None)
        }
        #[cfg(feature = "cos")]
        "cos" => {
            set("bucket", &place.authority);
            set("root", &place.path);
            open_http::<opendal::services::Cos>(fields, place, access, None)
        }
        #[cfg(feature = "hdfs")]
        "hdfs" => super::hdfs::open_hdfs(fields, place, access),
        other => Err(Error::bug(format!(
            "service {other} is compiled in, but nothing opens it"
        ))),
    }
}

/// Names the option that is missing, before opendal looks elsewhere for what was said in part.
#[cfg(feature = "remote")]
fn check_said(fields: &BTreeMap<String, String>, feature: &str) -> Result<()> {
    let has = |name: &str| fields.contains_key(name);
    let place = match feature {
        "oss" => Some("fs.oss.endpoint"),
        "cos" => Some("cos.endpoint"),
        _ => None,
    };
    if let Some(option) = place.filter(|_| !has("endpoint")) {
        return Err(not_set(option, ""));
    }
    // The key, its id and a token that goes with both, by opendal's names.
    let (id, key, token) = match feature {
        "s3" => ("access_key_id", "secret_access_key", "session_token"),
        "oss" => ("access_key_id", "access_key_secret", "security_token"),
        "cos" => ("secret_id", "secret_key", "security_token"),
        _ => return Ok(()),
    };
    let (missing, given) = match (has(id), has(key)) {
        (true, false) => (key, id),
        (false, true) => (id, key),
        (false, false) if has(token) => (id, token),
        _ => return Ok(()),
    };
    let named = |field: &str| {
        STORE_OPTIONS
            .iter()
            .find(|option| option.service == feature && option.field == field)
            .map_or("", |option| option.key)
    };
    let why = format!(", but {} is", named(given));
    Err(not_set(named(missing), &why))
}

#[cfg(feature = "remote")]
fn not_set(option: &'static str, why: &str) -> Error {
    Error::config(format!("{option} is not set{why}")).with("option", option)
}

#[cfg(feature = "s3")]
fn check_region(fields: &BTreeMap<String, String>) -> Result<()> {
    let in_environment = |name: &str| std::env::var_os(name).is_some();
    if fields.contains_key("region")
        || in_environment("AWS_REGION")
        || in_environment("AWS_DEFAULT_REGION")
    {
        return Ok(());
    }
    Err(not_set(
        "s3.region",
        ", nor is AWS_REGION (any word will do for a server without regions)",
    ))
}

/// Finds out where an account of Azure is, and takes a token as the portal gives it.
#[cfg(feature = "azblob")]
fn complete_azure(fields: &mut BTreeMap<String, String>) -> Result<()> {
    if let Some(token) = fields.get_mut("sas_token") {
        *token = token.trim_start_matches('?').to_owned();
    }
    let in_environment = |name: &&str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let account = fields.get("account_name").cloned().or_else(|| {
        ["AZBLOB_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT_NAME"]
            .iter()
            .find_map(in_environment)
    });
    if !fields.contains_key("endpoint") {
        let account = account.ok_or_else(|| {
            not_set(
                "azure.account-name",
                ", nor is azure.endpoint, and the URL names no account",
            )
        })?;
        let endpoint = format!("https://{account}.blob.core.windows.net");
        fields.insert("endpoint".into(), endpoint);
    } else if fields.contains_key("account_key") && account.is_none() {
        // A server of one's own has the account in the path, where nobody looks for it.
        let endpoint = fields.get("endpoint").map_or("", String::as_str);
        if !endpoint.contains(".blob.") {
            return Err(not_set("azure.account-name", ", but azure.account-key is"));
        }
    }
    Ok(())
}

#[cfg(not(feature = "remote"))]
fn build(
    feature: &str,
    _: &Place,
    _: BTreeMap<String, String>,
    _: &StoreAccess,
) -> Result<StoreRoot> {
    Err(Error::bug(format!("service {feature} is not compiled in")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use state_api::ErrorKind;

    fn parse(url: &str) -> Result<Place> {
        let scheme = url.split_once(':').unwrap().0;
        let service = SERVICES
            .iter()
            .find(|s| s.schemes.contains(&scheme))
            .unwrap();
        place(service, scheme, url)
    }

    #[test]
    fn spellings_of_one_place_are_one_url() {
        for url in ["s3://b/a/c", "s3a://b/a/c/", "s3n://b//a///c"] {
            let found = parse(url).unwrap();
            assert_eq!(
                (found.url.as_str(), found.path.as_str()),
                ("s3://b/a/c", "/a/c"),
                "{url}"
            );
        }
        assert_eq!(parse("s3p://b").unwrap().url, "s3://b");
        assert_eq!(parse("viewfs://c/x").unwrap().url, "viewfs://c/x");
        assert_eq!(parse("hdfs:///x").unwrap().authority, "");
        let azure = parse("abfss://box@me.dfs.core.windows.net/x").unwrap();
        assert_eq!(azure.authority, "box@me.dfs.core.windows.net");
    }

    #[test]
    fn k_479_a_url_with_credentials_a_query_or_dots_is_refused_without_being_repeated() {
        for url in [
            "s3://AKIA:hidden@b/a",
            "s3://AKIA:hid/den@b/a",
            "s3://AKIA/hidden@b/a",
            "s3://AKIA:hidden",
            "hdfs://me:hidden@host:9000/a",
            "s3://b/a?secret_access_key=hidden",
            "s3://b/a#hidden",
            "abfs://box:hidden@me.dfs.core.windows.net/x",
        ] {
            let error = parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(!format!("{error} {error:?}").contains("hid"), "{error:?}");
        }
        for url in ["s3:///a", "s3://b/../a", "gs://b/./a"] {
            assert_eq!(parse(url).unwrap_err().kind(), ErrorKind::Config, "{url}");
        }
    }

    #[test]
    fn an_unknown_scheme_names_the_known_ones_and_one_that_is_left_out_its_feature() {
        let error = find("s4").err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(
            error.to_string().contains("known are file, s3, s3a"),
            "{error}"
        );
        for service in SERVICES.iter().filter(|service| !service.compiled) {
            let error = find(service.schemes[0]).err().unwrap();
            let words = format!("build with --features {}", service.feature);
            assert!(error.to_string().contains(&words), "{error}");
        }
    }
}
