"""Models that the README shows, named as `dpdemo.examples.pitfall:Net`, and the one of `dpdemo init`."""
