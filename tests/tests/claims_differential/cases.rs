//! A store without memory (46): what was kept is still replayed and what is held is renewed and given back; nothing new
//! is claimed or kept, and nothing is left half done.

use lockkeeper_core::claim::{Admission, Command, Owner};
use lockkeeper_core::resp::Reply;

use crate::limits::Limit;
use crate::oracle::Request;
use crate::scenery::*;
use crate::store::words;
use crate::world::World;

fn request(owner: Owner) -> Request {
    let limits = vec![Limit::slots(SLOTS, 2, SLOT_LEASE_US)];
    Request { owner, limits, replay: Some(Limit::window("{k}:replay", 9, 60_000_000)), asks: vec![key(), lock()] }
}

fn without_memory(world: &mut World) {
    world.store.run(&[words(&["CONFIG", "SET", "maxmemory", "1"])]);
}

fn granted(world: &mut World, request: &Request) -> Vec<u64> {
    match world.admit(request).expect("the store agrees") {
        Admission::Granted { claims, .. } => claims.iter().map(|claim| claim.fence).collect(),
        other => panic!("not granted: {other:?}"),
    }
}

#[test]
fn store_46_a_store_without_memory_takes_no_claim_and_no_outcome_and_changes_nothing() {
    let mut world = World::new(NOW_US);
    let fence = granted(&mut world, &Request { asks: vec![key()], ..request(owner(1)) })[0];
    without_memory(&mut world);
    let before = world.oracle.clone();
    let lock_alone = Request { asks: vec![lock()], ..request(owner(2)) };
    let refused = world.admit(&lock_alone).expect_err("refused");
    assert!(refused.contains("OOM"), "{refused}");
    let refused = world.tell(&complete(owner(1), &key(), fence, done())).expect_err("refused");
    assert!(refused.contains("OOM"), "{refused}");
    world.oracle = before;
    world.compare_all().expect("nothing is left half done");
}

#[test]
fn store_46_a_store_without_memory_replays_renews_and_takes_back() {
    let mut world = World::new(NOW_US);
    let fences = granted(&mut world, &request(owner(1)));
    let [fence, lock_fence] = fences[..] else { panic!("two claims") };
    without_memory(&mut world);
    world.now_us += LEASE_US / 3;
    let all = || {
        holdings(
            owner(1),
            vec![held(&key(), Some(fence)), held(&lock(), Some(lock_fence))],
            vec![slot(SLOTS, SLOT_LEASE_US)],
        )
    };
    world.tell(&Command::Renew(all())).expect("renewed");
    world.store.run(&[words(&["CONFIG", "SET", "maxmemory", "0"])]);
    world.tell(&complete(owner(1), &key(), fence, done())).expect("kept");
    without_memory(&mut world);
    let admission = world.admit(&request(owner(2))).expect("replayed");
    assert_eq!(admission, Admission::Kept(done()));
    world.tell(&Command::Release { holdings: all(), is_uncounted: false }).expect("taken back");
}

#[test]
fn store_46_a_limit_on_replays_that_cannot_count_does_not_stand_in_the_way() {
    let mut world = World::new(NOW_US);
    let fence = granted(&mut world, &request(owner(1)))[0];
    world.tell(&complete(owner(1), &key(), fence, sealed())).expect("kept");
    without_memory(&mut world);
    let again = Request { replay: Some(Limit::window("{k}:fresh", 1, 60_000_000)), ..request(owner(2)) };
    assert_eq!(world.admit(&again).expect("answered"), Admission::Kept(sealed()));
    assert_eq!(world.store.run(&[words(&["EXISTS", "{k}:fresh"])]), [Reply::Integer(0)]);
}
