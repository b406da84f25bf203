//! What fuzzes and measures decoders finds the faults that it is for.
use std::panic::catch_unwind;

use backend_testkit::Settings;
use backend_testkit::fuzz::fuzz_with;
use backend_testkit::meter::{Bound, Metered, held_by, peak_of};

#[global_allocator]
static METERED: Metered = Metered;

#[test]
fn the_meter_counts_the_peak_and_what_is_kept() {
    let (_, peak) = peak_of(|| {
        drop(vec![0u8; 10_000]);
        vec![0u8; 5_000]
    });
    assert!((10_000..11_000).contains(&peak), "{peak}");
    let (_kept, held) = held_by(|| (vec![0u8; 100], drop(vec![0u8; 1000])));
    assert_eq!(held, 100);
}

#[test]
fn an_inner_measurement_does_not_hide_an_earlier_peak() {
    let (_, peak) = peak_of(|| {
        drop(vec![0u8; 10_000]);
        peak_of(|| drop(vec![0u8; 10])).1
    });
    assert!(peak >= 10_000, "{peak}");
}

#[test]
fn a_bound_holds_to_the_byte() {
    let bound = Bound {
        fixed: 100,
        per_byte: 2,
    };
    bound.hold(50, || drop(vec![0u8; 200]));
    assert!(catch_unwind(|| bound.hold(50, || drop(vec![0u8; 201]))).is_err());
}

/// Believes a length before the bytes are there, and its input's last byte.
fn credulous(input: &[u8]) -> Vec<u8> {
    let Some((len, rest)) = input.split_first_chunk::<4>() else {
        return Vec::new();
    };
    let mut out = Vec::with_capacity(u32::from_le_bytes(*len) as usize & 0xff_ffff);
    out.extend_from_slice(rest);
    out
}

fn message(attempt: impl Fn(&[u8]) + std::panic::RefUnwindSafe) -> Option<String> {
    let settings = Settings {
        cases: 500,
        seed: 1,
    };
    let run = || fuzz_with(settings, &[vec![1, 0, 0, 0, 7]], |_, bytes| attempt(&bytes));
    let payload = catch_unwind(run).err()?;
    payload.downcast_ref::<String>().cloned()
}

#[test]
fn a_decoder_that_believes_a_length_is_caught_and_the_input_named() {
    let bound = Bound {
        fixed: 256,
        per_byte: 4,
    };
    let said = message(|bytes| drop(bound.hold(bytes.len(), || credulous(bytes))));
    let said = said.expect("it is caught");
    assert!(said.starts_with("HOLDFAST_SEED="), "{said}");
}

#[test]
fn a_decoder_that_panics_on_a_flipped_bit_is_caught() {
    assert!(message(|bytes| assert!(bytes.first() != Some(&3))).is_some());
    assert_eq!(message(|_| {}), None);
}
