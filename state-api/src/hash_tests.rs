use std::time::Duration;

use bytes::Bytes;

use super::*;
use crate::ErrorKind;

#[test]
fn murmur_is_that_of_flink() {
    for (hash, mixed) in [
        (0, 593_689_054),
        (1, 68_075_478),
        (2, 1_085_422_463),
        (42, 1_134_849_565),
        (127, 1_931_274_395),
        (128, 132_521_001),
        (1000, 3_506_311),
        (-1, 1_982_413_648),
        (i32::MIN, 1_718_298_732),
        (i32::MAX, 1_653_689_534),
    ] {
        assert_eq!(murmur(hash), mixed, "murmur({hash})");
    }
    for (text, mixed) in [
        ("a", 1_455_541_201),
        ("abc", 74_834_163),
        ("hello", 1_715_862_179),
    ] {
        assert_eq!(murmur(java_string_hash(text)), mixed, "murmur of {text:?}");
    }
}

/// The one input that mixes to `i32::MIN`, found by running the function backwards.
#[test]
fn k_007_a_mixing_result_of_i32_min_becomes_zero() {
    assert_eq!(murmur(-2_089_875_627), 0);
    assert_eq!(non_negative(i32::MIN), 0);
    assert_eq!(non_negative(i32::MIN + 1), i32::MAX);
}

#[test]
fn java_hash_codes_are_those_of_java() {
    assert_eq!(
        ["", "a", "abc", "hello"].map(java_string_hash),
        [0, 97, 96354, 99_162_322]
    );
    // Two UTF-16 units, a high and a low surrogate.
    assert_eq!(java_string_hash("😀"), 0xd83d * 31 + 0xde00);
    assert_eq!(true.flink_hash(), Some(1231));
    assert_eq!(false.flink_hash(), Some(1237));
    assert_eq!((-7i8).flink_hash(), Some(-7));
    assert_eq!((-7i32).flink_hash(), Some(-7));
    assert_eq!((1i64 << 32 | 5).flink_hash(), Some(4));
    assert_eq!(i64::MIN.flink_hash(), Some(i32::MIN));
    // Flink's Tuple2: 31 times the first hash plus the second.
    assert_eq!((7i32, "a".to_owned()).flink_hash(), Some(7 * 31 + 97));
    assert_eq!(None::<i32>.flink_hash(), Some(0));
    assert_eq!(7u64.flink_hash(), None);
}

#[test]
fn a_key_without_a_java_hash_is_refused_under_the_flink_hash() {
    assert!(HashId::Flink.check::<(String, i64)>().is_ok());
    assert!(HashId::Holdfast1.check::<u64>().is_ok());
    let error = HashId::Flink.check::<(String, u64)>().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(error.context("type"), Some("tuple(string,u64)"));
}

/// Computed with the `xxhash` package for Python.
#[test]
fn holdfast_1_hashes_never_change() {
    fn check<K: StateKey + std::fmt::Debug>(key: K, hash: u64) {
        assert_eq!(key.stable_hash(), hash, "{key:?}");
    }
    check((), 0x2d06_8005_38d3_94c2);
    check(true, 0xe12e_f9d2_eb86_ceeb);
    check(7u8, 0x4c5c_ca45_d0f4_811f);
    check(513u16, 0x0813_0b77_ddef_5807);
    check(-1i32, 0xcd6b_1c92_0d3f_662c);
    check(0u64, 0xc77b_3abb_6f87_acd9);
    check(1u64, 0x2fbc_5935_64db_792e);
    check(1usize, 0x2fbc_5935_64db_792e);
    check(u64::MAX, 0x5111_c7e4_7d78_4413);
    check(i64::MIN, 0x828f_2476_789a_0e5f);
    check(1u128, 0x26f2_a114_8cf5_2011);
    check('a', 0x6b48_7791_eb71_9ad8);
    check(String::new(), 0x2d06_8005_38d3_94c2);
    check("a".to_owned(), 0xe6c6_32b6_1e96_4e1f);
    check("key-1".to_owned(), 0x2d29_f133_6b02_29f9);
    check("grüße".to_owned(), 0x5746_6903_66eb_bcad);
    check("x".repeat(300), 0xa5d1_b460_7dc8_3554);
    check(std::sync::Arc::<str>::from("hello"), 0x9555_e855_5c62_dcfd);
    check(b"hello".to_vec(), 0x9555_e855_5c62_dcfd);
    check(Bytes::from_static(b"hello"), 0x9555_e855_5c62_dcfd);
    check([1u8, 2, 3], 0xebce_9b76_32ae_733b);
    check(vec![1u32, 2], 0xec4d_7df4_4c2c_5407);
    check((1u64, "a".to_owned()), 0x907c_985a_cb8a_efc7);
    check(Some(1u32), 0x0303_6954_137d_c302);
    check(None::<u32>, 0xc44b_dff4_074e_ecdb);
    check(Duration::from_millis(1500), 0x9bac_bef8_4d18_5954);
    check(Box::new(1u64), 0x2fbc_5935_64db_792e);
}

#[test]
fn holdfast_1_groups_never_change() {
    let max = MaxParallelism::new(128).unwrap();
    let group = |key: u64| HashId::Holdfast1.group(&key, max).0;
    assert_eq!([0, 1, 42, u64::MAX].map(group), [17, 12, 97, 110]);
    let texts = ["", "a", "key-1", "hello"].map(str::to_owned);
    let groups = texts
        .each_ref()
        .map(|key| HashId::Holdfast1.group(key, max).0);
    assert_eq!(groups, [74, 88, 59, 118]);
    let max = MaxParallelism::new(32768).unwrap();
    let groups = texts
        .each_ref()
        .map(|key| HashId::Holdfast1.group(key, max).0);
    assert_eq!(groups, [19786, 31448, 32571, 16246]);
    for key in &texts {
        for id in [HashId::Holdfast1, HashId::Flink] {
            let hash = KeyHash::of(key, id, max);
            assert_eq!(hash.stable(), key.stable_hash());
            assert_eq!(hash.group(), id.group(key, max));
        }
    }
}

#[test]
fn a_hash_id_is_stored_by_name() {
    for id in [HashId::Holdfast1, HashId::Flink] {
        assert_eq!(id.as_str().parse::<HashId>().unwrap(), id);
    }
    assert_eq!(HashId::default().to_string(), "holdfast-1");
    let error = HashId::parse("holdfast-2").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.message().contains("known are holdfast-1 and flink"));
}

#[test]
fn hashing_within_an_encoding_does_not_disturb_it() {
    #[derive(Clone, PartialEq, Eq)]
    struct HashesInside(u32);
    impl StateType for HashesInside {
        const FIXED_SIZE: Option<usize> = Some(8);
        const HAS_HEAP: bool = false;
        fn schema() -> crate::Schema {
            u64::schema()
        }
        fn encode(&self, out: &mut Vec<u8>) {
            out.extend_from_slice(&1u32.to_le_bytes());
            hash_encoded(&(self.0, self.0)).encode(&mut Vec::new());
            out.extend_from_slice(&0u32.to_le_bytes());
        }
        fn decode(input: &mut &[u8]) -> Result<Self> {
            u64::decode(input).map(|_| Self(0))
        }
        fn to_value(&self) -> crate::Value {
            1u64.to_value()
        }
        fn from_value(_: crate::Value) -> Result<Self> {
            Ok(Self(0))
        }
    }
    assert_eq!(hash_encoded(&HashesInside(9)), 1u64.stable_hash());
}
